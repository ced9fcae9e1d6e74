"""The device that learns."""

import os
import platform

import jax

DEVICES = ("auto", "cpu", "gpu")


def use_device(name: str) -> None:
    """Learn on `cpu` or `gpu`; `auto` takes what JAX finds. To be called before JAX is used."""
    if name not in DEVICES:
        raise ValueError(f"device={name!r} must be one of {', '.join(DEVICES)}")
    if name == "cpu":
        jax.config.update("jax_platforms", "cpu")
    elif name == "gpu" and jax.default_backend() != "gpu":
        raise ValueError(
            "device='gpu', but JAX finds none: check the driver and pip install 'surefoot[cuda]', "
            "or learn on the cpu (--device cpu)"
        )


def device_name() -> str:
    """The device that learns, and the machine around it."""
    device = jax.devices()[0]
    return f"{device.device_kind} ({platform.machine()}, {cores()} cores)"


def cores() -> int:
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
