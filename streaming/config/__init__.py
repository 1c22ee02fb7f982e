"""The configuration: `monitor.toml` and the environment, read strictly, with problems told in our words.

* ``settings``        the tables of the file as pydantic models; ``load`` reads them
* ``kafka``           the `[kafka]` table, for two different clients
* ``environment``     variables that override the file
* ``toml_errors``, ``problems``   where the file is wrong, a line for each problem
* ``text``            a configuration as text, without secrets
* ``reload``          reading it again while the process runs
* ``group_patterns``, ``local_path``, ``telemetry_zone``   values that need more than a type
"""
