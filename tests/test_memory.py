"""What does not fit into memory is trained from the disk: 150,000 images of 448 pixels within 8
GiB.
"""

import os
import shutil
import subprocess
import sys

import pytest

GIB = 2**30
CODE = '''
import resource, sys
from pathlib import Path
import numpy as np, torch
from spml_nb import data as datasets, runs, training
from spml_nb.data import images

N, C, S = 150_000, 81, 448
rng = np.random.default_rng(0)
labels = np.where(rng.random((N, C), dtype=np.float32) < 0.02, 1, -1).astype(np.int8)
labels[np.arange(N), np.arange(N) % C] = 1
files = [Path(f'{k:06}.jpg') for k in range(N)]
split = np.where(np.arange(N) % 5, 'train', 'val')
data = datasets.Dataset('many', files, labels, [f'c{c}' for c in range(C)], split)
file = images.cache_file(data, S)
file.parent.mkdir(parents=True)
with open(file, 'wb') as out:   # the decoded images: 84 GiB of which nothing takes room on the disk
    header = {'descr': '|u1', 'fortran_order': False, 'shape': (N, S, S, 3)}
    np.lib.format.write_array_header_1_0(out, header)
    out.truncate(out.tell() + N * S * S * 3)
config = runs.resolve(
    runs.Config(
        loss='role', dataset='many', backbone='mini', image_size=S, batch_size=16, epochs=1
    )
)
train, val = data.rows('train'), data.rows('val')
observed = np.zeros((len(train), C), np.int8)
observed[np.arange(len(train)), train % C] = 1
task = training.Task(data, train, val, val[:0], observed, labels[val])
trainer = training.Trainer(config, runs.Run(config), task)
trainer.begin(1, trainer.stages[0])
trainer.watch.start(1)
trainer.method.start_epoch(1)
for index in torch.randperm(len(train))[:48].split(16): trainer.step(index)
scores = training.predict_logits(trainer.module, trainer.method, trainer.source, val[:100])
assert scores.shape == (100, C) and torch.isfinite(scores).all()
assert trainer.images.store.nbytes > 80 * 2**30
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
'''


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != 'linux', reason='sparse files and peak memory as Linux has them'
)
def test_150_000_images_at_448_pixels_train_within_8_gib(tmp_path):
    environment = os.environ | {'SPML_NB_CACHE': str(tmp_path / 'cache')}
    done = subprocess.run(
        [sys.executable, '-c', CODE], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    peak = int(done.stdout.split()[-1])
    print(f'peak {peak / GIB:.2f} GiB')
    assert peak < 8 * GIB
    written = sum(file.stat().st_blocks * 512 for file in (tmp_path / 'cache').rglob('*.npy'))
    assert written < GIB  # the test itself takes no room
    shutil.rmtree(tmp_path / 'cache')
