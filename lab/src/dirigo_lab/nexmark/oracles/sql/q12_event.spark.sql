-- Per bidder and window of 10 s, the number of bids.
SELECT bidder, COUNT(*) AS bid_count, window.start AS window_start, window.end AS window_end
FROM bid
GROUP BY bidder, window(date_time, '10 seconds')
