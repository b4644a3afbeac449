"""Readers of labels in the layouts of other tools, one module each; `data.formats` chooses one."""
