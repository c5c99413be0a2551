"""``python -m distagg``."""

import sys

from distagg.cli.main import main

sys.exit(main())
