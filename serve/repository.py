"""The models that are being served, by name and version, and how one takes another's place."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from serve.config import ServeSettings
from serve.errors import InvalidRequest, NotFound, Unavailable
from serve.loading import load_model
from serve.model import Model
from testbed.bundle import MANIFEST, Bundle
from testbed.errors import UserError
from testbed.records.files import RecordError

logger = logging.getLogger(__name__)


class Repository:
    """Models by name and version; the newest version answers where none is named.

    Args:
        settings: the bundle that is served at start, and the folder of further ones.

    Attributes:
        default: name of the first model: what the protocols without a model name ask.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.default: str | None = None
        self._models: dict[str, dict[str, Model]] = {}
        self._current: dict[str, Model] = {}
        self._changing = asyncio.Lock()

    def get(self, name: str | None, version: str | None = None) -> Model:
        """Return a model.

        Raises:
            NotFound: no such name or version.
            Unavailable: nothing is loaded yet.
        """
        wanted = self.default if name is None else name
        if wanted is None or not self._current:
            raise Unavailable("no model is loaded; help: wait for /v2/health/ready", reason="not_ready")
        model = self._current.get(wanted) if version is None else self._models.get(wanted, {}).get(version)
        if model is None:
            what = f"model {wanted!r}" if version is None else f"version {version!r} of model {wanted!r}"
            msg = f"no {what} is loaded; help: {', '.join(sorted(self._current))}"
            raise NotFound(msg)
        return model

    def versions(self, name: str) -> list[str]:
        """Return the loaded versions of a model, oldest first."""
        return sorted(self._models.get(name, {}), key=int)

    def loaded(self) -> list[Model]:
        """Return every loaded model."""
        return [model for versions in self._models.values() for model in versions.values()]

    def index(self) -> list[dict[str, str]]:
        """Return every model that is loaded or could be, in the form of the repository protocol."""
        rows = [
            {"name": model.card.name, "version": model.card.version, "state": "READY", "reason": ""}
            for model in self.loaded()
        ]
        ready = {(row["name"], row["version"]) for row in rows}
        for bundle in self._bundles():
            key = (bundle.manifest.name, str(bundle.manifest.version))
            if key not in ready:
                rows.append({"name": key[0], "version": key[1], "state": "UNAVAILABLE", "reason": "not loaded"})
        return rows

    async def load(self, name: str | None = None) -> Model:
        """Load the newest version of a model beside the old one, verify and warm it, then move the traffic.

        Args:
            name: a name among the bundles on disk; None = the bundle that the server was started with.

        Raises:
            NotFound: no bundle of that name.
            InvalidRequest: the bundle is broken: the old version goes on.
        """
        async with self._changing:
            bundle = self._find(name)
            loop = asyncio.get_running_loop()
            model = await asyncio.to_thread(load_model, bundle, self.settings, loop=loop)
            old = self._current.get(model.card.name)
            same = self._models.get(model.card.name, {}).get(model.card.version)
            self._models.setdefault(model.card.name, {})[model.card.version] = model
            self._current[model.card.name] = model
            self.default = self.default or model.card.name
        for retired in {old, same} - {None, model}:
            assert retired is not None
            await self._retire(retired)
        return model

    async def unload(self, name: str) -> None:
        """Take a model out of service; what waits is answered first. Raises NotFound."""
        async with self._changing:
            if name not in self._current:
                msg = f"no model {name!r} is loaded"
                raise NotFound(msg)
            del self._current[name]
            # Listed under the lock: what a load puts here next is not ours to retire.
            retired = list(self._models[name].values())
        for model in retired:
            await self._retire(model)

    async def close(self) -> None:
        """Stop every lane, after what waits has been served."""
        for model in self.loaded():
            await model.close("draining")

    async def _retire(self, model: Model) -> None:
        await model.close("unloaded")
        versions = self._models[model.card.name]
        if versions.get(model.card.version) is model:
            del versions[model.card.version]
        logger.info("model retired", extra={"figures": {"model": model.card.name, "version": model.card.version}})

    def _find(self, name: str | None) -> Bundle:
        if name is None:
            return Bundle(self.settings.bundle)
        found = [bundle for bundle in self._bundles() if bundle.manifest.name == name]
        if not found:
            msg = f"no bundle of a model {name!r} on disk"
            raise NotFound(msg)
        return max(found, key=lambda bundle: bundle.manifest.version)

    def _bundles(self) -> list[Bundle]:
        folders = [self.settings.bundle]
        if self.settings.repository is not None:
            folders += sorted(manifest.parent for manifest in self.settings.repository.glob(f"*/{MANIFEST}"))
        found = []
        for folder in folders:
            try:
                found.append(Bundle(folder))
            except RecordError as error:
                logger.warning("bundle left out: %s", error)
        return found


async def load_again(repository: Repository, name: str) -> Model:
    """Load by name on a client's word; raises InvalidRequest where the bundle cannot be served."""
    try:
        return await repository.load(name)
    except UserError as error:
        logger.warning("load refused: %s", error)
        # The file's place on this machine is nobody's business outside it.
        msg = f"model {name!r} cannot be served: {public_reason(error)}; the version before goes on"
        raise InvalidRequest(msg) from error


def public_reason(error: UserError) -> str:
    """Return an error's message with folders cut off file names."""
    words = [Path(word).name if word.startswith("/") else word for word in str(error).split(" ")]
    return " ".join(words)
