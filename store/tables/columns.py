"""What all tables share: the names of constraints, and columns of text and time."""

from datetime import datetime

from sqlalchemy import Column, DateTime, ForeignKey, MetaData, Text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def at(name: str, *, nullable: bool = False) -> Column[datetime]:
    """A time with its zone."""
    return Column(name, DateTime(timezone=True), nullable=nullable)


def text_column(
    name: str,
    reference: ForeignKey | None = None,
    *,
    nullable: bool = False,
    primary_key: bool = False,
    unique: bool = False,
    index: bool = False,
) -> Column[str]:
    """Text that must be there unless it is ``nullable``."""
    extra = [] if reference is None else [reference]
    return Column(name, Text, *extra, nullable=nullable, primary_key=primary_key, unique=unique or None, index=index or None)
