"""Files of import and export: archives, streams of JSON, output that is whole or absent."""
