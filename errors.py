"""The one exception for what a user can put right."""


class UserError(Exception):
    """A user's mistake, told in one clear line.

    The text names the thing, what was found and what is accepted. Entry points print
    it as `error: <text>` and exit with status 1, without a traceback.
    """
