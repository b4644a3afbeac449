"""What the tests of folders and tables share: a small table, and the message for a wrong one."""

import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.data.loading import load

NAMES = ['a.jpg', 'b.jpg', 'c.jpg', 'd.jpg', 'e.jpg', 'f.jpg']
ROWS = 'image,cat,dog,split\na.jpg,1,0,train\nb.jpg,0,1,train\nc.jpg,1,,val\nd.jpg,1,1,test\n'


def refused(what, *parts, **options):
    "The message of the SpmlError that `load` raises; it must contain every part."
    with pytest.raises(SpmlError) as caught:
        load(what, **options)
    for part in parts:
        assert str(part) in str(caught.value), str(caught.value)
    return str(caught.value)


def numbered(n, **columns):
    "A table of n rows with names 0.jpg …"
    lines = ['image,labels' + ''.join(f',{name}' for name in columns)]
    lines += [
        ','.join([f'{k}.jpg', 'x|y' if k % 2 else 'x', *(values[k] for values in columns.values())])
        for k in range(n)
    ]
    return '\n'.join(lines), [f'{k}.jpg' for k in range(n)]
