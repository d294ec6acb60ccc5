"""Built-in recipes by their names: those of every family."""

from recipes.collaborative.family import NCF
from recipes.ranking.family import DCNV2, DLRM
from recipes.sequential.family import SIM

__all__ = ["BY_NAME", "DCNV2", "DLRM", "NCF", "SIM"]

BY_NAME = {definition.name: definition for definition in (DLRM, DCNV2, SIM, NCF)}
