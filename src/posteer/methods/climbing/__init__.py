"""The best classes of prompts for any scorer: all of them where they are few, else by climbing."""
