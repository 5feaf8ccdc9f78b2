"""`tensorboard` and `data_service`: jobs whose program is ours."""

from __future__ import annotations

from tf_scheduler.options.fields import Number, Whole

from .base import FROM_NOW_ON, Change, Section, about


class TensorBoardSection(Section):
    """With service.use_tensorboard."""

    port = Whole(
        load_default=6006,
        least=1,
        most=65_535,
        metadata=about(
            f"Its port, if an agent offers that one, else any; its address is shown. {FROM_NOW_ON}", required=True
        ),
    )
    cpus = Number(
        load_default=1.0,
        least=0.01,
        most=4096.0,
        unit="cores",
        metadata=about("Its CPUs.", "cores", change=Change.RESTART, required=True),
    )
    mem = Whole(
        load_default=4096,
        least=32,
        most=100_000_000,
        metadata=about("Its memory.", "MB", change=Change.RESTART, required=True),
    )


class DataServiceSection(Section):
    """tf.data service: a dispatcher, and workers that prepare the data for those that train."""

    workers = Whole(
        load_default=0,
        most=100_000,
        metadata=about(
            "How many workers prepare data; 0: no data service. Tasks find it at DATA_SERVICE_ADDRESS.",
            change=Change.SCALE,
        ),
    )
    cpus = Number(
        load_default=1.0,
        least=0.01,
        most=4096.0,
        unit="cores",
        metadata=about("CPUs of each worker.", "cores", change=Change.RESTART),
    )
    mem = Whole(
        load_default=2048,
        least=32,
        most=100_000_000,
        metadata=about("Memory of each worker.", "MB", change=Change.RESTART),
    )
    disk = Whole(
        load_default=0, most=1_000_000_000, metadata=about("Disk of each worker.", "MB", change=Change.RESTART)
    )
    dispatcher_cpus = Number(
        load_default=0.5,
        least=0.01,
        most=4096.0,
        unit="cores",
        metadata=about("CPUs of the dispatcher.", "cores", change=Change.RESTART),
    )
    dispatcher_mem = Whole(
        load_default=1024,
        least=32,
        most=100_000_000,
        metadata=about("Memory of the dispatcher.", "MB", change=Change.RESTART),
    )
