"""`compile: true`: network, head and loss of every method are one program, without a break, and its
losses, gradients and states are those of the step as it is.
"""

import copy
import warnings

import pytest
import torch
from steps import begin, trainer_of

from spml_nb import methods
from spml_nb.methods.core import find


def outcome(trainer, call, state):
    "Loss, gradients and the method's state after a step without dropout."
    torch.manual_seed(0)
    trainer.method.load_state_dict(state)
    trainer.module.eval()
    rows = torch.arange(6)
    views = {role: trainer.source.batch(rows.numpy(), role) for role in trainer.method.views}
    _, loss = call(views, rows)
    parameters = [*trainer.module.parameters(), *trainer.method.parameters()]
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return loss, gradients, copy.deepcopy(dict(trainer.method.named_buffers()))


@pytest.mark.parametrize('loss', methods.names())
def test_a_step_is_one_program(loss):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        trainer = trainer_of('cpu', loss, regime='linear')
    begin(trainer, len(trainer.stages))
    state = copy.deepcopy(trainer.method.state_dict())
    torch.compiler.reset()
    compiled = torch.compile(
        trainer.outputs_and_loss, backend='eager', fullgraph=True, dynamic=False
    )
    plain = outcome(trainer, trainer.outputs_and_loss, state)
    torch.testing.assert_close(outcome(trainer, compiled, state), plain, rtol=1e-4, atol=1e-6)
    trainer.module.train()
    trainer.program = compiled
    trainer.step(torch.arange(6))  # with dropout


def test_what_changes_by_the_epoch_is_no_part_of_the_program():
    "Else each epoch would be compiled anew."
    names = {name for name in methods.names() if find(name).varies}
    assert names == {'gr', 'llr', 'llct', 'llcp', 'splc'} | {
        f'boostlu_{name}' for name in ('llr', 'llct', 'llcp')
    }
