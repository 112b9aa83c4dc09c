"""Models of the Hugging Face hub by their ids: "gpt2", "org/name", "org/name:file.gguf".

`resolve` turns whatever a user gives into a path: what is here comes first, then the hub, through `huggingface_hub`
with its usual cache. Only files that heed reads are fetched: safetensors or GGUF, configs, tokenizers. No code of a
repository is fetched or run, and no pickle, unless `heed convert` asks for one.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from ..core.config import Data, nearest, read_data
from ..core.errors import ConfigError, RunError, WeightsError
from .formats.checkpoint import OWN
from .formats.folder import CONFIG
from .formats.pickles import PICKLED_INDEX
from .formats.safetensors import INDEX, PICKLED, WEIGHTS, shards_of
from .formats.sidecars import NAMES

SCHEME = "hf://"  # before an id: never a path of this machine
ADAPTER = "adapter_config.json"
LOGIN = (401, 403)
UNABLE = 500  # from this status on, it is the hub that fails
SECONDS = 20.0  # until the hub must say what a repository holds
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
_ID = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?::(?P<file>[^:\\]+))?")
_FILES = (".gguf", ".safetensors", ".json", ".toml", *PICKLED)
NOTHING = "no-such-file"  # a pattern that asks for nothing: then a folder of the cache is never incomplete


@dataclass(frozen=True)
class HubId:
    """A repository of models, a version of it, and perhaps one file."""

    name: str
    file: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return self.name + (f" at {self.revision}" if self.revision else "")


def resolve(
    given: Path | str, *, revision: str | None = None, offline: bool | None = None, pickles: bool = False
) -> Path:
    """The folder or file of a model: a path that is here, or else an id of the hub, whose files are fetched once.

    A `Path` is always a path of this machine. `offline`: only what was fetched before; None: as HF_HUB_OFFLINE says.
    `pickles`: where there are no safetensors, take pickled weights.
    """
    text = str(given)
    place = Path(given).expanduser()
    if not text.startswith(SCHEME) and place.exists():
        if revision is not None:
            raise RunError(f"{given} is here on this machine, where it has no revision {revision!r}; leave that out")
        return place
    return _fetched(_id(given, revision), offline=offline, pickles=pickles)


def _id(given: Path | str, revision: str | None) -> HubId:
    """The id that a text names; raise if it can only be meant as a path."""
    text = str(given)
    found = _ID.fullmatch(text.removeprefix(SCHEME))
    forced = isinstance(given, str) and text.startswith(SCHEME)
    if forced and found is None:
        raise RunError(f"{text} names no model of the hub; write {SCHEME}org/name")
    local = found is None or isinstance(given, Path) or _means_a_path(text, found["file"])
    if local and not forced:
        raise RunError(
            f"{given} is not a folder or a file; give a run folder, a checkpoint folder or a .gguf file, or the id of "
            f"a model on the hub (org/name){_near(Path(text).expanduser())}"
        )
    assert found is not None
    return HubId(found["name"], found["file"], revision)


def _means_a_path(text: str, file: str | None) -> bool:
    """Whether something that could be an id is meant as a path: a file's ending, or a folder that is here."""
    name = text.partition(":")[0] if file is not None else text
    first, _, rest = name.partition("/")
    return name.endswith(_FILES) or bool(rest and Path(first).is_dir())


def _near(place: Path) -> str:
    """What there is beside a path that is not."""
    try:
        beside = [path.name for path in place.parent.iterdir() if not path.name.startswith(".")]
    except OSError:
        return ""
    near = get_close_matches(place.name, beside, 1)
    return f"; did you mean {place.parent / near[0]}?" if near else ""


# --- the hub ---


def _fetched(what: HubId, *, offline: bool | None, pickles: bool) -> Path:
    with _worded(what):
        from huggingface_hub import constants

        alone = bool(constants.HF_HUB_OFFLINE) if offline is None else offline
        source: _Source = _Cached(what) if alone else _Hub.reached(what)
        return _Choice(what, source.files(), source, pickles).path()


class _Source:
    """Where files come from."""

    def __init__(self, what: HubId) -> None:
        self.what = what

    def files(self) -> list[str]:
        """All that there are."""
        raise NotImplementedError

    def take(self, names: Sequence[str]) -> Path:
        """A folder that holds these."""
        raise NotImplementedError


class _Cached(_Source):
    """What was fetched before."""

    def files(self) -> list[str]:
        folder = self.take(())
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())

    def take(self, names: Sequence[str]) -> Path:
        from huggingface_hub import snapshot_download

        revision = self.what.revision
        return Path(snapshot_download(self.what.name, revision=revision, local_files_only=True, allow_patterns=NOTHING))


class _Hub(_Source):
    """The hub itself."""

    def __init__(self, what: HubId, commit: str, listed: list[str]) -> None:
        super().__init__(what)
        self._commit, self._listed = commit, listed

    @classmethod
    def reached(cls, what: HubId) -> _Source:
        """The hub; if it does not answer, what was fetched before, if anything."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        try:
            info = HfApi().model_info(what.name, revision=what.revision, timeout=SECONDS)
        except Exception as error:  # the connection's own errors: of requests in old versions, of httpx in new ones
            if isinstance(error, HfHubHTTPError) and error.response.status_code < UNABLE:
                raise
            before = _Cached(what)
            try:
                before.files()
            except LocalEntryNotFoundError:
                raise error from None
            return before
        return cls(what, str(info.sha), sorted(file.rfilename for file in info.siblings or ()))

    def files(self) -> list[str]:
        return self._listed

    def take(self, names: Sequence[str]) -> Path:
        from huggingface_hub import snapshot_download

        before = self._held(names)
        if before is not None:
            return before
        patterns = [glob.escape(name) for name in names]
        return Path(snapshot_download(self.what.name, revision=self.what.revision, allow_patterns=patterns))

    def _held(self, names: Sequence[str]) -> Path | None:
        """The folder of the cache, if it holds all of these already: then nothing is asked and no bar is shown."""
        from huggingface_hub import try_to_load_from_cache

        found = [try_to_load_from_cache(self.what.name, name, revision=self.what.revision) for name in names]
        paths = [Path(one) for one in found if isinstance(one, str)]
        if not paths or len(paths) < len(names):
            return None
        folder = paths[0].parents[len(PurePosixPath(names[0]).parts) - 1]
        return folder if folder.name == self._commit else None


@dataclass(frozen=True)
class _Choice:
    """Which files of a repository heed needs, and what it lacks."""

    what: HubId
    files: list[str]
    source: _Source
    pickles: bool

    def path(self) -> Path:
        """The folder of a checkpoint, or a GGUF file."""
        if self.what.file is not None:
            return self._one(self.what.file)
        ggufs = [name for name in self.files if name.endswith(".gguf")]
        if CONFIG in self.files and (not ggufs or self._stored() is not None):
            return self._folder()
        if len(ggufs) == 1:
            return self._one(ggufs[0])
        raise WeightsError(self._lack(ggufs))

    def _one(self, name: str) -> Path:
        """A single file, by its name or by a part of it that no other GGUF has."""
        ggufs = [file for file in self.files if file.endswith(".gguf")]
        exact = [file for file in ggufs if name in (file, PurePosixPath(file).name)]
        found = exact or [file for file in ggufs if name.lower() in file.lower()]
        if len(found) != 1:
            several = f"; {len(found)} of its files are called so" if found else ""
            raise WeightsError(f"{self.what.name} holds no one GGUF file {name!r}{several}; {_named(ggufs, self.what)}")
        return self.source.take(found) / found[0]

    def _folder(self) -> Path:
        small = [name for name in NAMES if name in self.files]
        stored = self._stored()
        if stored is None:
            raise WeightsError(self._lack([]))
        index = [stored] if stored.endswith(".json") else []
        folder = self.source.take([*small, *index])
        _must_be_known(self.what, read_data(folder / CONFIG))  # before gigabytes are fetched
        weights = sorted(set(shards_of(folder / stored).values())) if index else [stored]
        lost = [name for name in weights if name not in self.files]
        if lost:
            raise WeightsError(
                f"{self.what} lacks {', '.join(lost[:3])}: the copy here is not whole, or the repository is not; load "
                "it once with a connection, without offline"
            )
        return self.source.take(weights)

    def _stored(self) -> str | None:
        """The file of the weights, or the index that tells which there are."""
        kinds = [WEIGHTS, INDEX, *(("pytorch_model.bin", PICKLED_INDEX) if self.pickles else ())]
        return next((name for name in kinds if name in self.files), None)

    def _lack(self, ggufs: list[str]) -> str:
        """Why nothing can be loaded, and what to do."""
        if ggufs:
            return f"{self.what.name} holds {len(ggufs)} GGUF files; {_named(ggufs, self.what)}"
        pickled = [name for name in self.files if name.endswith(PICKLED)]
        if pickled and CONFIG in self.files:
            return (
                f"{self.what} holds only pickled weights ({', '.join(pickled[:3])}), which could run code when opened; "
                f"make safetensors of them in a process of its own: heed convert {self.what.name} OUT"
            )
        if ADAPTER in self.files:
            return (
                f"{self.what} is an adapter (LoRA) of another model, not a model; heed reads "
                "adapters from folders: download it, then heed.load(BASE, adapter=FOLDER)"
            )
        shown = ", ".join(self.files[:8]) or "nothing"
        return f"{self.what} holds no {CONFIG} with {WEIGHTS} and no GGUF file, so heed cannot load it; it has {shown}"


def _named(ggufs: list[str], what: HubId) -> str:
    if not ggufs:
        return "it holds no GGUF file"
    listed = "".join(f"\n  {what.name}:{name}" for name in ggufs[:20])
    return f"name one of them:{listed}"


def _must_be_known(what: HubId, config: Data) -> None:
    """Raise if heed has no family for it, and say so if the repository brings code of its own."""
    from . import AUTHORS
    from .families import FAMILIES

    kind = config.get("model_type")
    if kind == OWN or kind in FAMILIES.named or kind in AUTHORS:
        return
    code = "; it would run code of its repository (auto_map), which heed never does" if "auto_map" in config else ""
    near = nearest(str(kind), FAMILIES.named)
    raise WeightsError(f"{what} is a {kind!r} model, which heed cannot load{code}{near}")


# --- errors ---


@contextmanager
def _worded(what: HubId) -> Iterator[None]:
    """Whatever huggingface_hub raises, in heed's words."""
    from huggingface_hub import errors

    try:
        yield
    except (RunError, WeightsError):
        raise
    except ConfigError as error:
        raise WeightsError(f"{what}: {error}") from None
    except errors.GatedRepoError:
        raise RunError(
            f"{what} is gated: its authors want their terms accepted first, on its page at the hub; then log in here "
            "(hf auth login) or set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise RunError(f"{what.name} has no revision {what.revision!r}; give a branch, a tag or a commit") from None
    except errors.RepositoryNotFoundError:
        raise RunError(_not_found(what)) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise RunError(_not_here(what, error)) from None
    except errors.HfHubHTTPError as error:
        login = "; log in (hf auth login) or set HF_TOKEN" if error.response.status_code in LOGIN else ""
        raise RunError(f"the hub does not give {what}: {_first_line(error)}{login}") from None
    except Exception as error:  # the connection's own errors, and what a disk refuses
        raise RunError(
            f"{what} is not a folder or a file here, and it could not be fetched from the hub: {type(error).__name__}: "
            f"{_first_line(error)}; what was fetched so far is kept: try again, or give a path on this machine"
        ) from None


def _not_found(what: HubId) -> str:
    local = "" if "/" in what.name else f", and no folder {what.name} here"
    return (
        f"there is no model {what} on the hub{local}; ids are org/name, and a private one needs a login (hf auth "
        f"login) or HF_TOKEN{_near(Path(what.name))}"
    )


def _not_here(what: HubId, error: Exception) -> str:
    caused = str(error.__cause__ or error)
    if "outgoing traffic" in str(error) or "offline" in caused.lower():
        return (
            f"{what} is not a folder or a file here and was not fetched before, and the hub is not asked (offline); "
            f"load it once without offline (and HF_HUB_OFFLINE), or give a path on this machine{_near(Path(what.name))}"
        )
    return f"{what} is not a folder or a file here, and the hub cannot be reached ({_first_line(error)}); try again"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:200]
