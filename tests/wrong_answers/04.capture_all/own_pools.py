# check: one pool
# words: bucket 2 should be captured with pool=the pool of bucket 4
# why: every graph keeps its own intermediates
# passes ordinary: yes
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with captured_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph = new_graph(bucket)
        graph.capture(body, None)
        graphs[bucket] = graph
    return graphs
