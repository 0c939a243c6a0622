"""The one error that a user's mistake raises.

UserError (ValueError)
├── testbed.records.RecordError: a record or bundle file that is missing, damaged or too new
└── what each stage adds for its own bad inputs
"""


class UserError(ValueError):
    """Something the user can mend. The message gives the fact, where, then ``; help: …``.

    The command line prints it without a traceback and exits with status 1.
    """
