"""Reference answers of lesson 04."""

# %% 04.1
# η·λ = 0.05 · 4 = 0.2.  The border 2 sin(π / (2 (2τ + 1))) is 0.2091 at τ = 7 and 0.1846 at τ = 8, so a staleness of 7
# is still stable.  N workers have a staleness of N - 1: seven other workers, and you.
from minilayup import theory

eta_lambda = 0.05 * 4
tau = 0
while theory.delay_border(tau + 1) > eta_lambda:
    tau += 1
answer_04_1 = tau + 1

# %% 04.2
# Eight workers have a staleness of about 6.2, where the border is 12 % of the one without delay.  One worker's critical
# rate is about 0.55, so eight diverge above about 0.065.  Less than half of that leaves room for the swings, and is
# large enough to arrive in time.  (0.2 / 8 = 0.025 too: border and 1/N are nearly the same number.)  Batches stay at
# 32: larger ones are fewer updates of the same delay.
one_workers_critical = 0.55
border = theory.delay_border(6) / theory.delay_border(0)
answer_04_2 = {"lr": 0.4 * border * one_workers_critical, "batch_size": 32}


# %% 04.3
# `theta -= …` changes the array in place, and every entry of `past` is that array: `past[-1 - tau]` is always the
# newest weights.  `theta = theta - …` makes a new array and leaves the old ones as they were.
def late(gradient, theta, lr, tau, steps):
    past = [theta] * (tau + 1)
    for _ in range(steps):
        theta = theta - lr * gradient(past[-1 - tau])
        past.append(theta)
    return past[tau:]


answer_04_3 = late
