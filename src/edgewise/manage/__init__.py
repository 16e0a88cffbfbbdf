"""The models on this machine: what is there, what could be, how to be rid of it."""

from edgewise.manage.store import Removed, StoredModel, list_models, remove_model

__all__ = ["Removed", "StoredModel", "list_models", "remove_model"]
