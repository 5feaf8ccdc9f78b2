"""`gang`: how the tasks that are launched all or none wait for each other."""

from __future__ import annotations

from tf_scheduler.model.placement import GangMode
from tf_scheduler.options.fields import Number, Text

from .base import Section, about


class GangSection(Section):
    hold_seconds = Number(
        load_default=5.0,
        most=60.0,
        unit="seconds",
        metadata=about("How long offers are held while not all tasks have a place.", "seconds"),
    )
    mode = Text(
        load_default=GangMode.LAUNCH.value,
        choices=[item.value for item in GangMode],
        metadata=about(
            "launch: offers are held, then released; reserve: what is found is reserved until the gang is complete."
        ),
    )
    reserve_timeout = Number(
        load_default=120.0,
        least=1.0,
        most=86_400.0,
        unit="seconds",
        metadata=about("How long reservations are kept while not all tasks have a place.", "seconds"),
    )
