# check: one pool
# words: bucket 4 should be captured with pool=None|no memory to share
# why: a graph is asked for its pool before it has one
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs = {}
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with captured_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graphs[bucket] = new_graph(bucket)
        graphs[bucket].capture(body, graphs[bucket].pool())
    return graphs
