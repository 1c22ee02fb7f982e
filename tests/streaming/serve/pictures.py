"""The README's pictures of the page, of the sample capture just before its last incident ends:

python -m tests.streaming.serve.pictures docs/images
"""

import sys
import tempfile
from pathlib import Path

from streaming.config import Settings
from streaming.store import Store
from tests.streaming.serve import chromium
from tests.streaming.serve.conftest import running
from tests.streaming.test_store_and_model import outputs_of

SAMPLE = Path(__file__).parents[3] / "streaming" / "demo" / "sample.jsonl.gz"
PICTURES = {"overview.png": "/", "group.png": "/groups/orders?minutes=1"}
SIZES = {"overview.png": (1280, 640), "group.png": (1280, 1500)}


def draw(folder: Path) -> None:
    """Write each picture into a folder."""
    with tempfile.TemporaryDirectory() as data:
        settings = Settings.model_validate({"store": {"url": f"sqlite:///{data}/monitor.db"}, "serve": {"port": 0}})
        store = Store.open(settings.store.connection_url())
        outputs = outputs_of(SAMPLE)
        closed_ms = [f["closed_ms"] for o in outputs for f in o.get("findings", ()) if f["closed_ms"]]
        shown = [output for output in outputs if output["at_ms"] < max(closed_ms)]
        store.apply_batch(checkpoint_id="c", batch_id=0, outputs=shown, settings=settings, caught_up=True)
        with running(store, settings) as base:
            for name, path in PICTURES.items():
                chromium.screenshot(base + path, folder / name, SIZES[name])
        store.close()


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
