# What needs the header of NCCL, relative to transfer/nccl. The emulated GPU's tests compile it, too.
set(NCCL_SOURCES channel.cc channel_watch.cc communicator.cc context.cc handshake.cc lane.cc
    nccl_library.cc nccl_medium.cc operations.cc reaper.cc slot_pool.cc)
