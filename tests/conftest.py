"""What every test process starts from."""

import multiprocessing
import signal

# A suite that a script starts in the background inherits an ignored Ctrl-C, and so would the programs that it tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some tests start workers by the hundred; a fork server that has imported what workers need makes one in 20 ms, and has
# no threads that a fork could lose.
multiprocessing.set_forkserver_preload(["vecwrap.backends.worker", "vecwrap.testing", "cv2", "ale_py"])
