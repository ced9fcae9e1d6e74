"""The device that JAX computes on."""

import os
import platform

import jax

DEVICES = ("auto", "cpu", "gpu")


def use_device(name: str) -> None:
    """Compute on `cpu` or `gpu`; `auto` leaves the choice to JAX. Call it before JAX is used."""
    if name not in DEVICES:
        raise ValueError(f"device={name!r} must be one of {', '.join(DEVICES)}")
    if name == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif name == "gpu" and jax.default_backend() != "gpu":
        raise ValueError(
            "device='gpu': JAX has no GPU. Check the driver and pip install 'surefoot[cuda]', or "
            "use device='cpu'"
        )


def device_name() -> str:
    """The devices, with the machine's architecture and number of cores."""
    devices = jax.local_devices()
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"{count}{devices[0].device_kind} ({platform.machine()}, {cores()} cores)"


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
