"""Published beside ours: the papers’ numbers, tables, figures and claims."""
