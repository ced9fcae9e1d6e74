"""Clips of an episode: .gif by Pillow, .mp4 by imageio with its ffmpeg."""

import importlib.util
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

GIF_MAX_FPS = 50  # browsers slow down anything faster


def save_clip(frames: Iterable[np.ndarray], path: str | Path, fps: float) -> Path:
    """Write frames (uint8 [H, W, 3], all of one shape) to `path`, and return it.

    The suffix chooses the format. Missing folders are created, and the file appears under its name
    only when it is complete. Frames are encoded as they come, never all held in memory.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".gif", ".mp4"):
        raise ValueError(f"path={str(path)!r}: suffix {path.suffix!r} must be one of .gif, .mp4")
    if not fps > 0 or (suffix == ".gif" and fps > GIF_MAX_FPS):
        most = f", and at most {GIF_MAX_FPS} for .gif" if suffix == ".gif" else ""
        raise ValueError(f"fps={fps} must be positive{most}")
    if suffix == ".mp4" and not _has_video():
        raise ValueError(
            f"path={str(path)!r} needs imageio and imageio-ffmpeg: "
            "pip install 'surefoot[video]', or use a name that ends in .gif"
        )
    write = _write_gif if suffix == ".gif" else _write_mp4
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{suffix}")
    try:
        write(_checked(frames), unfinished, fps)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def default_clip() -> Path:
    """The clip's name if none is given: .gif where .mp4 cannot be written."""
    return Path("clip.mp4" if _has_video() else "clip.gif")


def _has_video() -> bool:
    return all(importlib.util.find_spec(name) for name in ("imageio", "imageio_ffmpeg"))


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The same frames; a ValueError at the first invalid one, or if there is none."""
    shape = None
    for k, frame in enumerate(frames):
        good = frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
        if not good or frame.shape != (shape or frame.shape):
            expected = list(shape) if shape else "[H, W, 3]"
            raise ValueError(
                f"frames[{k}] is {frame.dtype} {list(frame.shape)}; it must be uint8 {expected}"
            )
        shape = frame.shape
        yield frame
    if shape is None:
        raise ValueError("frames is empty; a clip needs at least one")


def _write_gif(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    def images() -> Iterator[Image.Image]:
        for k, frame in enumerate(frames):
            image = Image.fromarray(frame).quantize(dither=Image.Dither.NONE)
            # GIF counts hundredths of a second; rounding times, not durations, keeps the pace.
            image.info["duration"] = 10 * (round((k + 1) * 100 / fps) - round(k * 100 / fps))
            yield image

    stream = images()
    next(stream).save(path, save_all=True, append_images=stream, loop=0)


def _write_mp4(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    import imageio.v2 as imageio

    writer = imageio.get_writer(
        path,
        format="FFMPEG",  # pyright: ignore[reportArgumentType]
        fps=fps,
        codec="libx264",
        quality=8,
        pixelformat="yuv420p",
        macro_block_size=2,
        ffmpeg_log_level="error",
    )
    with writer, warnings.catch_warnings():
        # JAX warns of forks; this one runs ffmpeg at once.
        warnings.filterwarnings("ignore", ".*os.fork", RuntimeWarning)
        for frame in frames:
            # H.264 halves the colour channels, so both sides must be even.
            odd = ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0))
            writer.append_data(np.pad(frame, odd, mode="edge"))
