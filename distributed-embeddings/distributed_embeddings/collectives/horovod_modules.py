"""Import of Horovod, which may be absent."""

from types import ModuleType


def horovod_tensorflow() -> ModuleType:
    """Returns the module `horovod.tensorflow`; raises ValueError if it cannot be imported."""
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise ValueError(
            f"several processes need Horovod, which cannot be imported ({error}): install it "
            "(`HOROVOD_WITH_TENSORFLOW=1 pip install horovod`; in the toolkit: `make setup`), or "
            "start a single process"
        ) from None
    assert isinstance(hvd, ModuleType)
    return hvd
