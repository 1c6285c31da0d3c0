"""The explorer: a page served here, where prompts are searched for and flipped by hand.

Words and pictures are the page's (`views/pages`); here is what it may ask for, and who may ask.
Needs starlette and uvicorn: `pip install 'posteer[explore]'`.
"""
