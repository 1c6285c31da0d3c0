"""The paper's published figures beside ours."""
