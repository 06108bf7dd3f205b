"""Vectors in memory and the search for the nearest: the only home of numpy and usearch here."""
