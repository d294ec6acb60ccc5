"""Training on several ranks with Keras; names, arguments and defaults are those of Horovod.

A variable marked `de_local = True` is a rank's own: a table that `DistributedEmbedding` placed
there. The backward pass has already brought it every rank's part: its gradient is divided by the
number of ranks, and it is never broadcast. All other variables are copies, whose gradients are
averaged. With the mean over a rank's samples as the loss and batches of one size, N ranks take the
step that one rank would take with all samples. On one process all of this is the identity.
"""
