# check: replay
# words: the replay of bucket 1 left hidden_states as it was
# why: a graph returns nothing: it must write
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with captured_context(buffers.context(bucket)):
                return model(buffers.input_ids[:bucket], buffers.positions[:bucket])

        body()
        graph = new_graph(bucket)
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
