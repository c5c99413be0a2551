"""Rankings: items in the order of their scores, and rankings on disk."""
