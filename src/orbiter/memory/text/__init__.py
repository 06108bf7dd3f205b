"""Text as recall and erase see it: words, stems, personal data, cached functions."""
