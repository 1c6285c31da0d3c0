"""Pages for a browser: one file that opens from disk, and the parts that pages share.

`assets/` holds plain modules and one style sheet. A page that is served may serve them as they are;
a page that is one file has them joined (`bundle`). They write text into nodes and never markup.
"""
