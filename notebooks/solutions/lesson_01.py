# %% 01.1
# The two ReLUs keep their outputs, and the layers after them keep the same memory. The first linear layer keeps the
# batch, which was there before. The loss keeps the log-probabilities. Each number takes 4 bytes.
batch, width, classes = 128, 100, 10
relus = 2 * batch * width * 4
log_probabilities = batch * classes * 4
answer_01_1 = relus + log_probabilities  # 107,520; the loss keeps one more number, 4 bytes

# %% 01.2
# Three faults: .grad was never set back, so step k moved along the sum of k gradients; the decay had the sign that
# pushes weights away from zero; and the weight moved by the old velocity, so every step came one step late.
import torch


def sgd(model, loss, batches, lr, momentum, weight_decay):
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for batch in batches:
        model.zero_grad()
        loss(model, batch).backward()
        with torch.no_grad():
            for p, v in zip(model.parameters(), velocity):
                g = p.grad + weight_decay * p
                v.mul_(momentum).add_(g)
                p.sub_(lr * v)


answer_01_2 = sgd

# %% 01.3
# Backward does two matrix products a layer, one for the weights and one for the layer's input, but nobody asks for the
# gradient of the pictures: the first layer does one. With w wide and h deep its share of the forward pass is about
# 784 / (784 + (h - 1) w + 10), which has to be below 0.15, so (h - 1) w is above 4,433. Memory grows with h w, which is
# (h - 1) w + w and must stay below 4,870: so w is at most some 430. Narrow and deep.
answer_01_3 = (256, 19)
