"""What every test process starts from."""

import signal

# A suite that a script starts in the background inherits an ignored Ctrl-C, and so would the programs that it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
