"""The decode kernel in plain Python: the loops that run for every message.

The C kernel replaces it where one was built (see `kernel`). Both return the same results; the C
kernel calls this one for the rare cases: control frames, unusual reply subjects, protocol errors.
Archives of streams are decoded by the C kernel only.
"""

from jetspark.wire._python_columns import OTHER_FRAME as OTHER_FRAME
from jetspark.wire._python_columns import Columns as Columns
from jetspark.wire._python_columns import Deliveries as Deliveries
from jetspark.wire._python_columns import DeliveryDecoder as DeliveryDecoder
from jetspark.wire._python_columns import HeaderPairs as HeaderPairs
from jetspark.wire._python_columns import header_pairs as header_pairs
from jetspark.wire._python_frames import MAX_CONTROL_LINE as MAX_CONTROL_LINE
from jetspark.wire._python_frames import MAX_MESSAGE as MAX_MESSAGE
from jetspark.wire._python_frames import Event as Event
from jetspark.wire._python_frames import FrameRun as FrameRun
from jetspark.wire._python_frames import control_event as control_event
from jetspark.wire._python_frames import refuse as refuse
from jetspark.wire._python_frames import split_frames as split_frames
from jetspark.wire._python_json import JsonKind as JsonKind
from jetspark.wire._python_json import json_columns as json_columns
from jetspark.wire._python_messages import Delivered as Delivered
from jetspark.wire._python_messages import MessageFrame as MessageFrame
from jetspark.wire._python_messages import deliver as deliver
from jetspark.wire._python_reply import reply_fields as reply_fields
from jetspark.wire._python_reply import stream_position as stream_position
from jetspark.wire._python_reply import stream_sequence as stream_sequence
