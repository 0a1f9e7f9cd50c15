"""Configuration of Sphinx."""

import lindi_bridge

project = "lindi_bridge"
author = "The lindi_bridge developers"
project_copyright = "2026, the lindi_bridge developers"
release = version = lindi_bridge.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"lindi_bridge {version}"
html_static_path = ["_static"]

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name the types
napoleon_google_docstring = False
napoleon_use_rtype = False
