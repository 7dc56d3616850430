-- Every bid with the three directories of its url, null where the url has not so many. (An engine's own split_part would
-- give an empty text there, as if the directory had no name.)
WITH cut AS (
    SELECT *, LENGTH(url) - LENGTH(REPLACE(url, '/', '')) AS slashes
    FROM bid
)
SELECT
    auction, bidder, price, channel,
    CASE WHEN slashes >= 3 THEN split_part(url, '/', 4) END AS dir1,
    CASE WHEN slashes >= 4 THEN split_part(url, '/', 5) END AS dir2,
    CASE WHEN slashes >= 5 THEN split_part(url, '/', 6) END AS dir3
FROM cut
