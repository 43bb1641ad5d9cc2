"""The type checker of the tests: beartype, to which a whole number is a float too."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
