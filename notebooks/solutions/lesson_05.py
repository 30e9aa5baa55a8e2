"""Reference answers of lesson 05."""

# %% 05.1
# A float32 takes 4 bytes, and a bias has a gradient too. Both uses of the middle layer add to one .grad, so it counts
# once. Block writing keeps all three layers' gradients until the end; layer-wise writing holds one layer's at a time,
# and the first is the largest.
first, middle, last = (784 + 1) * 100, (100 + 1) * 100, (100 + 1) * 10
answer_05_1 = {"block": 4 * (first + middle + last), "layer": 4 * first}

# %% 05.2
# The three faults: .grad was never let go, so the next backward() added to it; the hook wrote at every micro-batch, not
# at the last; and walking the modules finds a shared weight twice, so it had two hooks and was written twice.
# model.parameters() names each parameter once. Counting belongs to the parameter, not to the model: their hooks fire
# one after the other.
from collections import Counter

import torch


def layerwise(model: torch.nn.Module, lr: float, parts: int) -> None:
    arrived: Counter[torch.Tensor] = Counter()

    def hook(parameter: torch.Tensor) -> None:
        arrived[parameter] += 1
        if arrived[parameter] % parts:
            return  # more micro-batches follow; their gradients add to .grad
        with torch.no_grad():
            parameter.add_(parameter.grad, alpha=-lr)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)


answer_05_2 = layerwise

# %% 05.3
# Thread 2 has to begin before the block write, so that it still reads the middle layers while their gradients wait, and
# late enough that it reads the last layer after the block write. With 8 layers and β = 2 the block write comes at 3 s,
# and thread 2 begins, at 75 % of a step, at 2.25 s. It reads layers 3 to 6 from 2.5 to 2.875 s, layer 8 at 3.125 s.
# (Thread 2 reads layer 3 at the very moment of its early write. It counts as seen.)
answer_05_3 = 'UpdateWaterfall offset=75 layers=8 beta=2 ages="at this offset"'
