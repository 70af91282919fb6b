"""What a checkpoint in a plan saves: a policy of names, for JAX and as text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.edits import Refused
from bufdb.fitting.plans import Depth, Plan, Switch


@dataclass(frozen=True)
class Policy:
    """Which values of a scan's body are saved, and where."""

    saved: tuple[str, ...]
    host: tuple[str, ...]
    """Names of the values that are saved in host memory."""
    has_products: bool
    """Whether the products of atomic parts are saved, too."""

    def for_jax(self) -> Any:
        """Return the policy that JAX's checkpoint accepts."""
        policies = jax_module().checkpoint_policies
        if self.host:
            named = policies.save_and_offload_only_these_names(
                names_which_can_be_saved=list(self.saved),
                names_which_can_be_offloaded=list(self.host),
                offload_src="device",
                offload_dst="pinned_host",
            )
        else:
            named = policies.save_only_these_names(*self.saved)
        if self.has_products:
            named = policies.save_from_both_policies(named, policies.dots_saveable)
        return named

    @property
    def words(self) -> str:
        """Return the policy as Python, to be read."""
        return self._text("jax")

    def text(self, jax: str) -> str:
        """Return the policy as Python for a file, from the name of the module jax.

        Raises:
            Refused: JAX promises nothing of it.
        """
        if self.host and self.has_products:
            raise Refused("no policy saves products and moves names to the host")
        return self._text(jax)

    def _text(self, jax: str) -> str:
        policies = f"{jax}.checkpoint_policies"
        saved = ", ".join(map(_quoted, self.saved))
        names = f"{policies}.save_only_these_names({saved})"
        if self.host:
            names = (
                f"{policies}.save_and_offload_only_these_names("
                f"names_which_can_be_saved=[{saved}], "
                f"names_which_can_be_offloaded=[{', '.join(map(_quoted, self.host))}], "
                f'offload_src="device", offload_dst="pinned_host")'
            )
        if self.has_products and (self.saved or self.host):
            return f"{policies}.save_from_both_policies({names}, {policies}.dots_saveable)"
        if self.has_products:
            return f"{policies}.dots_saveable"
        return names if self.saved or self.host else f"{policies}.nothing_saveable"


def policy(switches: tuple[Switch, ...], plan: Plan, region: int) -> Policy:
    """Return what a plan saves in a scan."""
    names = [one.name for one in switches if region in one.regions]
    return Policy(
        tuple(name for name in names if name in plan.saved),
        tuple(name for name in names if name in plan.offloaded),
        region in plan.with_dots,
    )


def rest_of(plan: Plan, depth: Depth) -> Plan:
    """Return the plan whose policy the other iterations of a scan have."""
    return replace(plan, saved=depth.saved, offloaded=depth.offloaded)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
