"""What the cases of `commands` do through librbd: `put IMAGE OFFSET LENGTH [BYTE]`, `discard IMAGE OFFSET LENGTH`, `hold IMAGE`."""
import os
import signal
import sys

import rados
import rbd


def main():
    what, spec, *args = sys.argv[1:]
    pool, *namespace, name = spec.split('/')
    # Its log would come between the letters of what is said.
    quiet = {'log_to_stderr': 'false', 'err_to_stderr': 'false', 'admin_socket': ''}
    with rados.Rados(conffile=os.environ['CEPH_CONF'], conf=quiet) as cluster, cluster.open_ioctx(pool) as ioctx:
        ioctx.set_namespace(''.join(namespace))
        with rbd.Image(ioctx, name) as image:
            if what == 'put':
                image.write((args[2] if len(args) > 2 else 'x').encode() * int(args[1]), int(args[0]))
            elif what == 'discard':
                image.discard(int(args[0]), int(args[1]))
            else:
                signal.signal(signal.SIGTERM, lambda *_: sys.exit())
                image.write(b'held', 0)
                print('ready', flush=True)
                signal.pause()


try:
    main()
except rbd.Error as error:
    sys.exit(str(error))
