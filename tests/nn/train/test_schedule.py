import pytest
import tensorflow as tf

from nn.optim.learning_rate import WarmupPolynomialDecay

SCHEDULE = WarmupPolynomialDecay(8.0, warmup_steps=4, decay_start_step=10, decay_steps=4)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 2.0),
        (1, 4.0),
        (3, 8.0),
        (10, 8.0),
        (11, 8 * 0.75**2),
        (13, 8 * 0.25**2),
        (14, 0.0),
        (15, 0.0),
        (10**9, 0.0),
    ],
)
def test_rates_by_hand(step, rate):
    assert float(SCHEDULE(tf.constant(step, tf.int64))) == pytest.approx(rate)


def test_no_warmup_and_no_decay():
    flat = WarmupPolynomialDecay(3.0)
    assert [float(flat(tf.constant(s, tf.int64))) for s in (0, 10, 10**7)] == [3.0] * 3


def test_steps_beyond_float32():
    late = WarmupPolynomialDecay(1.0, decay_start_step=2**24, decay_steps=2, power=1.0)
    assert float(late(tf.constant(2**24 + 1, tf.int64))) == pytest.approx(0.5)
