# The sources that need NCCL's header, relative to transfer/media/nccl. The tests on the emulated GPU
# compile them as well.
set(NCCL_SOURCES channel_watch.cc communicator.cc context.cc handshake.cc side_channel.cc
    nccl_medium.cc operations.cc)
