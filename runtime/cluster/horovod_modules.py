"""Imports of Horovod's elastic training, which may be absent."""

from collections.abc import Callable


def notify_host_changes(callback: Callable[[], None]) -> None:
    """Calls `callback`, in a thread, whenever elastic horovodrun adds or removes hosts.

    horovodrun notifies rank 0 only. Works before the processes are connected, too.

    Raises:
        ValueError: horovodrun cannot be reached.
    """
    from horovod.runner.common.util.network import NoValidAddressesFound
    from horovod.runner.elastic.worker import WorkerNotificationManager

    class Listener:
        def on_hosts_updated(self, timestamp: int, update: int) -> None:
            callback()

    manager = WorkerNotificationManager()
    try:
        manager.init()  # its server's thread keeps it alive
    except RuntimeError as error:
        reason = error.args[-1] if error.args else error
        raise ValueError(f"horovodrun does not answer this process: {reason}") from None
    except NoValidAddressesFound as error:
        raise ValueError(
            f"{error}: give horovodrun the name of a network interface that all hosts have "
            "(--network-interfaces)"
        ) from None
    manager.register_listener(Listener())
