"""Faults of optimisers, compensations and rules."""

from dataclasses import replace
from functools import partial

from torch import float64
from torch.nn.functional import cross_entropy

from laggard.models import MLP, losses
from laggard.simulator.learning.rules import clipping, compensations, damping, optimizers, schedules
from laggard.simulator.learning.rules.rule import Rule
from tests.faults import Replaced, settings
from tests.theory import (
    test_parameter_server,
    test_pseudo_code,
    test_recipe,
    test_rules,
)


def biased(right):
    def step(self, *given):
        change, state = right(self, *given)
        return change * (1 - state.power1), state

    return step


def backup_of_another(right):
    backups = []

    def correct(self, value, gradient, weights, state, lr):
        backups.append(gradient.weights)
        backup = backups[-2] if backups[1:] else weights
        return value + self.strength * value * value * (weights - backup), state

    return correct


def state_per_worker(right):
    states = {}

    def update(self, weights, given, state, **named):
        worker = given[0].worker
        weights, states[worker] = right(self, weights, given, states.get(worker, state), **named)
        return weights, states[worker]

    return update


def averaging(right):
    return lambda self, weights, given, state, combine=None: right(self, weights, given, state)


def adding_up(right):
    return lambda self, weights, given, state, combine=None: right(
        self, weights, given, state, combine=sum
    )


def at_the_weights_read(right):
    return lambda self, weights, given, state: right(self, given[0].weights, given, state)


def decoupled_decay(right):
    def step(self, weights, *rest, **named):
        new, state = right(replace(self, weight_decay=0.0), weights, *rest, **named)
        return new - self.lr * self.weight_decay * weights, state

    return step


def late_decay(right):
    def update(self, weights, given, *rest, **named):
        new, state = right(replace(self, weight_decay=0.0), weights, given, *rest, **named)
        return new - self.lr * self.weight_decay * given[0].weights, state

    return update


def clipping_decay_too(right):
    def step(self, weights, gradient, *rest, **named):
        return right(
            replace(self, weight_decay=0.0),
            weights,
            gradient + self.weight_decay * weights,
            *rest,
            **named,
        )

    return step


RULES = {
    "weight decay is decoupled": (
        Replaced(Rule, "step", decoupled_decay),
        partial(test_recipe.test_weight_decay_matches_torch, "adam"),
    ),
    "weight decay is late": (
        Replaced(Rule, "update", late_decay),
        test_recipe.test_decay_uses_fresh_weights,
    ),
    "weight decay is clipped too": (
        Replaced(Rule, "step", clipping_decay_too),
        partial(test_recipe.test_clipping_matches_torch, "clip_grad_norm_"),
    ),
    "members are clipped by one norm": (
        Replaced(
            clipping.ClipNorm,
            "__call__",
            lambda right: lambda self, g: g * (self.norm / g.norm()).clamp(max=1.0).to(g),
        ),
        test_recipe.test_members_with_recipes_equal_single_runs,
    ),
    "the cosine does not wait for the warm-up": (
        Replaced(schedules.Cosine, "__call__", settings(after=lambda cosine: 0.0)),
        partial(test_rules.test_schedules_match_torch, "a warm-up and a cosine after it"),
    ),
    "labels are not smoothed": (
        Replaced(losses.CrossEntropyLoss, "function", lambda right: lambda self: cross_entropy),
        partial(
            test_recipe.test_recipe_matches_training_loop_of_torch,
            MLP(hidden=[16]),
            float64,
            200,
            1e-11,
        ),
    ),
    "Adam's bias stays": (
        Replaced(optimizers.Adam, "step", biased),
        partial(test_rules.test_optimizers_match_torch, "adam"),
    ),
    "DC-ASGD-c's backup is another worker's": (
        Replaced(compensations.DCASGDc, "correct", backup_of_another),
        partial(test_pseudo_code.test_compensations_match_pseudo_code, "DC-ASGD-c"),
    ),
    "once-stale gradients count half": (
        Replaced(
            damping.Staleness,
            "weight",
            lambda right: lambda self, gradient, lr: 1 / (1 + gradient.staleness),
        ),
        partial(test_pseudo_code.test_compensations_match_pseudo_code, "lr / staleness"),
    ),
    "1/N counts twice": (
        Replaced(
            damping.OneOverN, "weight", lambda right: lambda self, *given: right(self, *given) ** 2
        ),
        test_rules.test_damping_scales_learning_rate,
    ),
    "fresh gradients are compensated": (
        Replaced(
            damping.Staleness,
            "weight",
            lambda right: lambda self, gradient, lr: 2 / (1 + gradient.staleness),
        ),
        partial(test_rules.test_fresh_gradients_are_not_compensated, "lr / staleness"),
    ),
    "gradients are added up": (
        Replaced(Rule, "update", adding_up),
        test_parameter_server.test_synchronous_update_equals_large_batch,
    ),
}
