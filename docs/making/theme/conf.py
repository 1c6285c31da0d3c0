"""How Sphinx builds the site (`docs/making/site.py` stages its sources)."""

from posteer import __version__

project, author, release = "posteer", "posteer contributors", __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["records"]
html_theme = "furo"
html_title = f"posteer {release}"
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_copy_source = False

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True

default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
copybutton_exclude = ".linenos, .gp"
