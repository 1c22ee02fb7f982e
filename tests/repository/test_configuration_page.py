"""`docs/configuration.md` is what the code says, and every key has a meaning."""

import pytest

from coordinator_model.thresholds import Thresholds
from docs.generate import configuration_page
from streaming.config.settings import TABLES


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_key_says_what_it_means(table):
    model = Thresholds if table == "thresholds" else TABLES[table]
    assert TABLES[table].model_fields.keys() - configuration_page._docs(model).keys() == set()


def test_the_page_is_what_the_code_says():
    assert configuration_page.PAGE.read_text() == configuration_page.page(), "run `make docs`"


def test_the_page_has_every_key():
    page = configuration_page.keys()
    keys = [key for table, model in TABLES.items() if table for key in model.model_fields]
    assert [key for key in keys if f"| `{key}` | " not in page] == []
