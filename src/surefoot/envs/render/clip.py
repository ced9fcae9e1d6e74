"""Clips of an episode: .gif by Pillow alone, .mp4 by imageio with its own ffmpeg."""

import importlib.util
import itertools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.spatial import KDTree

GIF_MAX_FPS = 50  # browsers slow down anything faster
_PALETTE_FRAMES = 12
_EXACT_COLOURS = 96


def save_clip(frames: Iterable[np.ndarray], path: str | Path, fps: float) -> Path:
    """Write frames (uint8 [H, W, 3], all of one shape) to `path`, and return it.

    The suffix chooses the format. Missing folders are made, and the file appears under its name
    only when it is complete. Frames of an .mp4 are written as they come, never all held in memory.
    """
    path = Path(path)
    writers: dict[str, Callable[[Iterator[np.ndarray], Path, float], None]]
    writers = {".gif": _write_gif, ".mp4": _write_mp4}
    suffix = path.suffix.lower()
    if suffix not in writers:
        raise ValueError(f"path: suffix {path.suffix!r} of {path} is not one of .gif, .mp4")
    if not fps > 0 or (suffix == ".gif" and fps > GIF_MAX_FPS):
        most = f" and at most {GIF_MAX_FPS} for .gif" if suffix == ".gif" else ""
        raise ValueError(f"fps: {fps} should be positive{most}")
    if suffix == ".mp4" and not _has_video():
        raise ValueError(
            f"path: {path} needs imageio and imageio-ffmpeg: "
            "pip install 'surefoot[video]', or give a name that ends in .gif"
        )
    checked = _checked(frames)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}.{os.getpid()}{suffix}")
    try:
        writers[suffix](checked, unfinished, fps)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _has_video() -> bool:
    return all(importlib.util.find_spec(name) for name in ("imageio", "imageio_ffmpeg"))


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """The same frames; a ValueError at the first that does not fit, or when there is none."""
    stream = iter(frames)
    first = next(stream, None)
    if first is None:
        raise ValueError("frames: none given, a clip needs at least one")

    def check(k: int, frame: np.ndarray) -> np.ndarray:
        frame = np.asarray(frame)
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(
                f"frames[{k}]: {frame.dtype} {list(frame.shape)}, should be uint8 [H, W, 3]"
            )
        if frame.shape != np.shape(first):
            raise ValueError(
                f"frames[{k}]: shape {list(frame.shape)}, should be {list(np.shape(first))} "
                "like the first"
            )
        return frame

    return (check(k, frame) for k, frame in enumerate(itertools.chain([first], stream)))


def _write_gif(frames: Iterator[np.ndarray], path: Path, fps: float) -> None:
    # The palette needs all frames before the first is written. Packed, an episode fits in memory.
    codes = (_codes(frame) for frame in frames)
    first = next(codes)
    packed = [zlib.compress(code.tobytes(), 1) for code in itertools.chain([first], codes)]

    def unpacked(k: int) -> np.ndarray:
        return np.frombuffer(zlib.decompress(packed[k]), first.dtype).reshape(first.shape)

    chosen = np.unique(np.linspace(0, len(packed) - 1, _PALETTE_FRAMES).astype(int))
    palette = _shared_palette([unpacked(k) for k in chosen])
    images = _indexed((unpacked(k) for k in range(len(packed))), palette)
    # GIF counts hundredths of a second; rounding the times, not the durations, keeps the pace.
    times = np.rint(np.arange(len(packed) + 1) * (100 / fps)).astype(int)
    next(images).save(
        path,
        save_all=True,
        append_images=images,
        duration=(10 * np.diff(times)).tolist(),
        loop=0,
        optimize=True,
    )


def _codes(colours: np.ndarray) -> np.ndarray:
    """uint8 [..., 3] -> one number for each colour, uint32 [...]."""
    red, green, blue = np.moveaxis(colours.astype(np.uint32), -1, 0)
    return red << 16 | green << 8 | blue


def _colours(codes: np.ndarray) -> np.ndarray:
    return np.stack([codes >> 16, codes >> 8 & 255, codes & 255], -1).astype(np.uint8)


def _shared_palette(frames: list[np.ndarray]) -> np.ndarray:
    """Up to 256 colours, uint8 [P, 3], for all frames (codes [H, W]).

    One palette for the whole clip keeps still areas still. The commonest colours are in it
    exactly; the rest is spread over all others seen, whether common or not, so that a rare but
    telling one, such as that of a robot inside a hazard, is not lost.
    """
    codes, counts = np.unique(np.stack(frames), return_counts=True)
    colours = _colours(codes[np.argsort(-counts, kind="stable")])
    if len(colours) <= 256:
        return colours
    rest = Image.fromarray(colours[None, _EXACT_COLOURS:]).quantize(256 - _EXACT_COLOURS)
    spread = np.array(rest.getpalette(), np.uint8).reshape(-1, 3)
    return np.concatenate([colours[:_EXACT_COLOURS], spread])[:256]


def _indexed(frames: Iterable[np.ndarray], palette: np.ndarray) -> Iterator[Image.Image]:
    """Each frame (codes [H, W]) in the nearest colours of the palette; Pillow's are only close."""
    tree, nearest = KDTree(palette), np.full(1 << 24, -1, np.int16)
    for codes in frames:
        new = np.unique(codes[nearest[codes] < 0])
        nearest[new] = tree.query(_colours(new))[1]
        image = Image.fromarray(nearest[codes].astype(np.uint8))
        image.putpalette(palette.tobytes())
        yield image


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
    with writer:
        for frame in frames:
            # H.264 halves the colour channels, so both sides must be even.
            odd = ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0))
            writer.append_data(np.pad(frame, odd, mode="edge"))
