"""Faults of compressed messages: sizes, memories, draws."""

from functools import partial

import torch

from laggard.simulator.algorithms.compressing import CompressedAnswers, Compressing
from laggard.simulator.algorithms.contrib import k_batch_sync
from laggard.simulator.algorithms.contrib.power_sgd import Factors, PowerSGD
from laggard.simulator.learning import compression
from laggard.simulator.learning.compression import Compress, Encoder
from tests.faults import Replaced
from tests.theory import test_compression
from tests.theory.trials import LINEAR


def forgetful(right):
    """A node that forgets what it has not sent."""

    def encode(self, value, gradient):
        self._memory = None
        return right(self, value, gradient)

    return encode


def at_once(right):
    """A change that is coded before the memory is added, as if it were the first."""

    def encode_change(self, change, gradient):
        self._memory = None
        return right(self, change, gradient)

    return encode_change


def kept_by_rank(right):
    """A node whose memory outlives a crash."""
    encoders = {}

    def encoder(self, node):
        key = id(self), node.rank
        if key not in encoders:
            encoders[key] = right(self, node)
        return encoders[key]

    return encoder


def coded_to_the_end(right):
    def code(node, encoder):
        yield node.work(encoder.seconds)
        receive = node.receive()
        receive.withdraw()
        return receive

    return code


def whole_size(right):
    def init(self, *given):
        right(self, *given)
        self._size = 1.0

    return init


def without_waiting(right):
    """A change leaves at once, whether the model before it has left or not."""

    def send(self, worker, weights, size=1.0):
        self._last.clear()
        return right(self, worker, weights, size)

    return send


def all_was_sent(right):
    """A server that takes its workers' models for its own."""

    def send(self, worker, weights, size=1.0):
        message = right(self, worker, weights, size)
        self._held[worker] = weights, self._held[worker][1]
        return message

    return send


def same_for_all(right):
    """A server that sends all what the first worker of a version lacks."""

    def next_of(self, held, weights, call):
        if self._coded is not None and self._coded[1] is weights:
            return self._coded[-1]
        return right(self, held, weights, call)

    return next_of


def rank_in_coin(right):
    def apply(self, values, rank, call):
        return right(self, values, rank, 10 * call + rank)

    return apply


def no_seconds(right):
    def init(self, *given):
        right(self, *given)
        self.seconds = 0.0

    return init


memory = test_compression.test_applied_and_remembered_values_sum_to_all
low_rank = partial(test_compression.test_low_rank_is_its_loop, 2)
COMPRESSION = {
    "what low rank leaves is lost": (
        Replaced(Factors, "rest_of", lambda right: lambda self, whole, mean: 0 * whole),
        low_rank,
    ),
    "a rank is smaller by one": (
        Replaced(
            Factors,
            "__init__",
            lambda right: lambda self, shapes, rank: right(self, shapes, min(rank, 7) - 1),
        ),
        partial(test_compression.test_full_rank_is_all_reduce, "ring"),
    ),
    "a gradient's rank is smaller by one": (
        Replaced(
            Factors,
            "__init__",
            lambda right: lambda self, shapes, rank: right(self, shapes, rank - 1),
        ),
        test_compression.test_gradient_of_low_rank_is_exact,
    ),
    "random indices are the first ones": (
        Replaced(
            compression,
            "keep_indices",
            lambda right: lambda values, indices: right(values, range(len(indices))),
        ),
        test_compression.test_random_indices_leave_their_share,
    ),
    "vectors cost nothing": (
        Replaced(
            PowerSGD,
            "sum",
            lambda right: (
                lambda self, node, value, width, number: right(
                    self, node, value, width if number else 1, number
                )
            ),
        ),
        test_compression.test_thin_matrices_have_the_bytes_of_formula,
    ),
    "indices cost nothing": (
        Replaced(
            compression,
            "size_of_kept",
            lambda right: lambda share, params, has_indices: right(share, params, False),
        ),
        partial(test_compression.test_message_has_size_of_formula, "top_k, 2 of 5"),
    ),
    "coding takes no time": (
        Replaced(Encoder, "__init__", no_seconds),
        test_compression.test_step_time_includes_coding_and_message_bytes,
    ),
    "what is not sent is lost": (
        Replaced(Encoder, "encode", forgetful),
        partial(memory, "sync_ps", "top_k"),
    ),
    "what is dropped is lost": (
        Replaced(Encoder, "_take_back", lambda right: lambda self: None),
        partial(memory, "k_sync", "sign"),
    ),
    "a memory outlives a crash": (
        Replaced(Compressing, "encoder", kept_by_rank),
        partial(test_compression.test_memory_is_lost_in_a_crash, "fedbuff"),
    ),
    "a sum is its last gradient": (
        Replaced(
            Encoder,
            "encode_sum",
            lambda right: lambda self, gradients: right(self, gradients[-1:]),
        ),
        partial(test_compression.test_keeping_all_numbers_is_no_compression, "downpour"),
    ),
    "fragments are coded as models": (
        Replaced(
            Compressing,
            "encoders",
            lambda right: lambda self, node, parts: right(self, node, [sum(parts)] * len(parts)),
        ),
        partial(
            test_compression.test_messages_of_every_method_have_size_of_formula, "streaming_diloco"
        ),
    ),
    "coding is not interrupted": (
        Replaced(k_batch_sync, "code_or_receive", coded_to_the_end),
        partial(test_compression.test_new_weights_interrupt_coding, "k_batch_sync", {}),
    ),
    "what a server does not send is lost": (
        Replaced(CompressedAnswers, "_send", all_was_sent),
        partial(test_compression.test_compression_both_ways_is_its_loop, LINEAR[0]),
    ),
    "a change overtakes the model before it": (
        Replaced(CompressedAnswers, "_send", without_waiting),
        partial(
            test_compression.test_changes_arrive_in_order_of_sending,
            "k_batch_sync",
            False,
        ),
    ),
    "all workers are sent what one lacks": (
        Replaced(CompressedAnswers, "_next", same_for_all),
        partial(test_compression.test_workers_are_near_the_server, "k_sync"),
    ),
    "a worker that is back is sent a change": (
        Replaced(CompressedAnswers, "forget", lambda right: lambda self, worker: None),
        partial(test_compression.test_returned_worker_is_sent_the_whole_model, "k_async"),
    ),
    "answers cost whole models": (
        Replaced(CompressedAnswers, "__init__", whole_size),
        partial(test_compression.test_answers_have_size_of_formula, "sync_ps"),
    ),
    "the rest of a change is lost": (
        Replaced(Encoder, "encode_change", at_once),
        test_compression.test_change_of_local_steps_is_remembered,
    ),
    "an estimate begins anew with every message": (
        Replaced(
            Encoder,
            "_next_estimate",
            lambda right: lambda self, value, compress: compression.Derived((value,), compress),
        ),
        partial(test_compression.test_ef21_reaches_minimum_of_mean_loss, "sync_ps", 0.2, 300, True),
    ),
    "numbers are rounded to the nearest level": (
        Replaced(
            compression,
            "quantize",
            lambda right: (
                lambda values, levels, uniform: right(values, levels, torch.full_like(uniform, 0.5))
            ),
        ),
        test_compression.test_random_rounding_is_unbiased,
    ),
    "nodes draw indices of their own": (
        Replaced(Compress, "apply", rank_in_coin),
        test_compression.test_nodes_draw_the_same_indices,
    ),
    "signs have the size of the norm": (
        Replaced(compression, "scaled_signs", lambda right: lambda values: 1.1 * right(values)),
        test_compression.test_compressors_are_contractions,
    ),
}
