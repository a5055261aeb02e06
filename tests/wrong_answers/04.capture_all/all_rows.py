# check: the rows of a bucket
# words: the graph of bucket 2 computes 4 rows
# why: every graph computes the largest batch: right, and slow
# passes ordinary: yes
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            size = len(buffers.input_ids)
            with captured_context(buffers.context(size)):
                buffers.hidden_states[:] = model(buffers.input_ids, buffers.positions)

        body()
        graph = new_graph(bucket)
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
